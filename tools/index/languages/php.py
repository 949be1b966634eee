"""PHP."""

import tree_sitter_php

from tools.index.languages.language import Language, words

LANGUAGE = Language(
    name="php",
    grammar=tree_sitter_php.language_php,
    definitions="""
        (namespace_definition name: (namespace_name) @name body: (_)) @module
        (class_declaration name: (name) @name) @class
        (interface_declaration name: (name) @name) @interface
        (trait_declaration name: (name) @name) @class
        (enum_declaration name: (name) @name) @enum
        (enum_case name: (name) @name) @constant
        (function_definition name: (name) @name) @function
        (method_declaration name: (name) @name) @method
        (const_declaration (const_element . (name) @name)) @constant
        (property_declaration (property_element name: (variable_name (name) @name))) @field
        (property_promotion_parameter name: (variable_name (name) @name)) @field
    """,
    blanks="(comment) @blank (string_content) @blank (heredoc_body) @blank (nowdoc_body) @blank (text) "
    "@blank "
    "(escape_sequence) @blank",
    keywords=words(
        "abstract and array as break callable case catch class clone const continue declare default do echo "
        "else "
        "elseif empty enum extends final finally fn for foreach function global goto if implements include "
        "include_once instanceof insteadof interface isset list match namespace new or print private "
        "protected "
        "public readonly require require_once return static switch throw trait try unset use var while xor "
        "yield "
        "php true false null this"
    ),
    attributes=("#[",),
)
