"""The bundled scheduler and extender."""
