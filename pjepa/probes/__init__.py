"""Models that read a frozen representation."""
