"""Recorders inside other people's training loops; each framework is imported only by its own file."""

from __future__ import annotations
