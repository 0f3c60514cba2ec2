"""Stage 5: labelled data -> pages; a report never computes.

write_report   one self-contained HTML file of one run, or of several side by side
verdict        what a record says its network learned, in one sentence with its evidence
watch          the same page, live on 127.0.0.1 while training writes
watch_text     the same verdict in a terminal
"""

from __future__ import annotations

from tangentlens.report.page import write_report
from tangentlens.report.verdict import Verdict, verdict
from tangentlens.report.watch import watch, watch_text

__all__ = ["Verdict", "verdict", "watch", "watch_text", "write_report"]
