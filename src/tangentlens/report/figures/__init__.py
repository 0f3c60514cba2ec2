"""Figures as data: each function takes labelled numbers and returns a plotly figure; nothing is computed here."""
