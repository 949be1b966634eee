"""C, and what C++ shares with it."""

import tree_sitter_c

from tools.index.languages.language import Language, words

SHARED = """
    (function_definition declarator: (function_declarator declarator: (identifier) @name)) @function
    (function_definition declarator: (pointer_declarator
        declarator: (function_declarator declarator: (identifier) @name))) @function
    (function_definition declarator: (pointer_declarator declarator: (pointer_declarator
        declarator: (function_declarator declarator: (identifier) @name)))) @function
    (function_definition declarator: (parenthesized_declarator
        (function_declarator declarator: (identifier) @name))) @function
    (function_definition declarator: (function_declarator
        declarator: (parenthesized_declarator (identifier) @name))) @function
    (struct_specifier name: (type_identifier) @name body: (_)) @struct
    (union_specifier name: (type_identifier) @name body: (_)) @union
    (enum_specifier name: (type_identifier) @name body: (_)) @enum
    (enumerator name: (identifier) @name) @constant
    (type_definition declarator: (type_identifier) @name) @type
    (type_definition declarator: (pointer_declarator declarator: (type_identifier) @name)) @type
    (type_definition declarator: (array_declarator declarator: (type_identifier) @name)) @type
    (type_definition declarator: (function_declarator
        declarator: (parenthesized_declarator (pointer_declarator (type_identifier) @name)))) @type
    (type_definition declarator: (function_declarator declarator: (type_identifier) @name)) @type
    (type_definition declarator: (pointer_declarator declarator: (function_declarator
        declarator: (parenthesized_declarator (pointer_declarator (type_identifier) @name))))) @type
    (preproc_def name: (identifier) @name) @macro
    (preproc_function_def name: (identifier) @name) @macro
    (field_declaration declarator: (field_identifier) @name) @field
    (field_declaration declarator: (pointer_declarator declarator: (field_identifier) @name)) @field
    (field_declaration declarator: (pointer_declarator declarator:
        (pointer_declarator declarator: (field_identifier) @name))) @field
    (field_declaration declarator: (array_declarator declarator: (field_identifier) @name)) @field
    (field_declaration declarator: (pointer_declarator declarator:
        (array_declarator declarator: (field_identifier) @name))) @field
    (field_declaration declarator: (array_declarator declarator:
        (array_declarator declarator: (field_identifier) @name))) @field
    (field_declaration declarator: (function_declarator declarator:
        (parenthesized_declarator (pointer_declarator (field_identifier) @name)))) @field
    (field_declaration declarator: (pointer_declarator declarator: (function_declarator declarator:
        (parenthesized_declarator (pointer_declarator (field_identifier) @name))))) @field
"""


def variables_in(*parents: str) -> str:
    """Patterns of the variables that are declared directly in such nodes."""
    return "".join(_VARIABLES.replace("PARENT", parent) for parent in parents)


_VARIABLES = """
    (PARENT (declaration declarator: [
        (identifier) @name
        (array_declarator declarator: (identifier) @name)
        (array_declarator declarator: (array_declarator declarator: (identifier) @name))
        (pointer_declarator declarator: (identifier) @name)
        (init_declarator declarator: (identifier) @name)
        (init_declarator declarator: (array_declarator declarator: (identifier) @name))
        (init_declarator declarator: (array_declarator declarator:
            (array_declarator declarator: (identifier) @name)))
        (init_declarator declarator: (pointer_declarator declarator: (identifier) @name))
        (init_declarator declarator: (pointer_declarator declarator:
            (array_declarator declarator: (identifier) @name)))
        (init_declarator declarator: (array_declarator declarator:
            (pointer_declarator declarator: (identifier) @name)))
    ]) @variable)
"""
FILE = ("translation_unit", "preproc_if", "preproc_ifdef", "preproc_else")
BLANKS = "(comment) @blank (string_content) @blank (char_literal) @blank (system_lib_string) @blank"
KEYWORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline int "
    "long "
    "register restrict return short signed sizeof static struct switch typedef union unsigned void volatile "
    "while define ifdef ifndef endif include"
)

LANGUAGE = Language(
    name="c",
    grammar=tree_sitter_c.language,
    definitions=SHARED + variables_in(*FILE),
    blanks=BLANKS,
    keywords=words(KEYWORDS),
)
