"""Predicts the kubelet's admission and scores places (pure)."""
