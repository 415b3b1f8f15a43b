"""Pods that are placed together or not at all: decided and watched over as one (pure)."""
