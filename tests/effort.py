"""How many examples hypothesis tries where a test asks for fewer than usual."""

from hypothesis import settings


def examples(usual: int) -> int:
    """This many, and as many times more as a longer profile asks for (``--hypothesis-profile long``)."""
    return usual * settings().max_examples // 100
