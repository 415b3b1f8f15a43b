"""Admission by fit: an AdmissionCheck of Kueue that lets start what fits into zones now."""
