"""Pictures of training, schedules, noise, chains and sample quality, and the commands that draw them."""
