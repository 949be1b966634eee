"""Scala."""

import tree_sitter_scala

from tools.index.languages.language import Language, words

LANGUAGE = Language(
    name="scala",
    grammar=tree_sitter_scala.language,
    definitions="""
        (class_definition name: (identifier) @name) @class
        (object_definition name: (identifier) @name) @class
        (trait_definition name: (identifier) @name) @interface
        (enum_definition name: (identifier) @name) @enum
        (function_definition name: (_) @name) @function
        (function_declaration name: (_) @name) @function
        (type_definition name: (type_identifier) @name) @type
        (template_body (val_definition pattern: (identifier) @name) @field)
        (template_body (var_definition pattern: (identifier) @name) @field)
    """,
    blanks="(comment) @blank (block_comment) @blank (string) @blank (character_literal) @blank",
    keywords=words(
        "abstract case catch class def do else extends false final finally for forSome if implicit import "
        "lazy "
        "match new null object override package private protected return sealed super this throw trait true "
        "try "
        "type val var while with yield given then end enum using"
    ),
)
