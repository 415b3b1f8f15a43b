"""The page in a real Chromium, against clusters made of the pure steps and against the demo."""
