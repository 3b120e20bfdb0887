"""Our format of saved models, and readers and writers of published formats."""
