"""How a command fails: one clear line, and an exit code that scripts can rely on."""


class CommandFailed(Exception):
    """What was asked for could not be done. The message says what, what was expected, what to do."""

    code = 1


class Usage(CommandFailed):
    """The command line or the configuration is wrong."""

    code = 2


class Unavailable(CommandFailed):
    """This machine or installation lacks something that the command needs."""

    code = 3
