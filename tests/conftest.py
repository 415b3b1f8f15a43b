"""Shared pytest configuration."""

from hypothesis import HealthCheck, settings

# How long an example takes says more about the machine than about the code.
settings.register_profile("rte", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rte")
