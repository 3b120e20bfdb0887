"""Pictures of schedules, chains, results and noise."""
