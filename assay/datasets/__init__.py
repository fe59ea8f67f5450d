"""Offline datasets: recorded decisions in files, with a hash of their contents; generated here or by others."""
