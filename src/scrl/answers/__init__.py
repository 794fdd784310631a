"""Completion text → answer → class: the only place that forgives model output."""
