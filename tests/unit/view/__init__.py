"""The page's data: what is shown, what is remembered, what is answered."""
