"""FACT: a frame branch and action tokens that correct each other (Lu and Elhamifar, CVPR 2024)."""
