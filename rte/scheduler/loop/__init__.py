"""The machine that decides: events in, effects out (pure)."""
