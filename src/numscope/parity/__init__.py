"""Whether two things are the same that live in different shapes, on different ranks or at different times, and how they differ."""
