"""Zone arithmetic for reports of other exporters."""
