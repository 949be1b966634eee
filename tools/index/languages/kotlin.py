"""Kotlin."""

import tree_sitter_kotlin

from tools.index.languages.language import Language, words

LANGUAGE = Language(
    name="kotlin",
    grammar=tree_sitter_kotlin.language,
    definitions="""
        (class_declaration name: (identifier) @name) @class
        (object_declaration name: (identifier) @name) @class
        (companion_object name: (identifier) @name) @class
        (enum_entry (identifier) @name) @constant
        (function_declaration name: (identifier) @name) @function
        (class_body (property_declaration (variable_declaration (identifier) @name)) @field)
        (source_file (property_declaration (variable_declaration (identifier) @name)) @variable)
        (class_parameter ["val" "var"] (identifier) @name) @field
        (type_alias (identifier) @name) @type
    """,
    blanks="(line_comment) @blank (block_comment) @blank (string_content) @blank (character_literal) @blank",
    keywords=words(
        "as break class continue do else false for fun if in interface is null object package return super "
        "this "
        "throw true try typealias typeof val var when while import private public internal override"
    ),
)
