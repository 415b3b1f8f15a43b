"""What only ``kubectl`` asks for."""
