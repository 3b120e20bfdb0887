"""Output for people: the terminal, pictures, replay pages, and the demo."""
