"""Bash and other shells."""

import tree_sitter_bash

from tools.index.languages.language import COMMENTS, Language, words

LANGUAGE = Language(
    name="bash",
    grammar=tree_sitter_bash.language,
    ascii=True,
    definitions="""
        (function_definition name: (word) @name) @function
        (program (variable_assignment name: (variable_name) @name) @variable)
        (program (declaration_command (variable_assignment name: (variable_name) @name) @variable))
    """,
    blanks=COMMENTS + " (raw_string) @blank (string_content) @blank (heredoc_body) @blank",
    keywords=words(
        "if then else elif fi case esac for select while until do done in function time local export"
    ),
)
