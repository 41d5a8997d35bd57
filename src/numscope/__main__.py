"""``python -m numscope`` is ``numscope``; torchrun starts it this way."""

from numscope.cli.command import main

if __name__ == "__main__":
    main()
