"""Scores of predictions, and their uncertainty."""
