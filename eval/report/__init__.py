"""The report: one self-contained HTML file for a collection of run folders."""
