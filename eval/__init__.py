"""Metrics, aggregation, intervals, published numbers and tables."""
