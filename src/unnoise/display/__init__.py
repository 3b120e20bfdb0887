"""What a person sees: the terminal, pictures, replay pages, the demo."""
