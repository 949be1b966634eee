"""Python."""

import tree_sitter_python

from tools.index.languages.language import Language, words

LANGUAGE = Language(
    name="python",
    grammar=tree_sitter_python.language,
    definitions="""
        (class_definition name: (identifier) @name) @class
        (function_definition name: (identifier) @name) @function
        (module (expression_statement (assignment left: (identifier) @name) @variable))
        (class_definition body: (block (expression_statement (assignment left: (identifier) @name) @field)))
        (module (type_alias_statement left: (type (identifier) @name)) @type)
    """,
    blanks="(comment) @blank (string_content) @blank",
    keywords=words(
        "False None True and as assert async await break class continue def del elif else except finally for "
        "from global if import in is lambda nonlocal not or pass raise return try while with yield self"
    ),
    wrappers=frozenset({"decorated_definition"}),
    doc="inside",
    prefixes=True,
)
