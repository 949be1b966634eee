"""Java."""

import tree_sitter_java

from tools.index.languages.language import Language, words

LANGUAGE = Language(
    name="java",
    grammar=tree_sitter_java.language,
    definitions="""
        (class_declaration name: (identifier) @name) @class
        (record_declaration name: (identifier) @name) @class
        (interface_declaration name: (identifier) @name) @interface
        (annotation_type_declaration name: (identifier) @name) @interface
        (enum_declaration name: (identifier) @name) @enum
        (enum_constant name: (identifier) @name) @constant
        (method_declaration name: (identifier) @name) @method
        (annotation_type_element_declaration name: (identifier) @name) @method
        (constructor_declaration name: (identifier) @name) @method
        (compact_constructor_declaration name: (identifier) @name) @method
        (field_declaration declarator: (variable_declarator name: (identifier) @name)) @field
        (constant_declaration declarator: (variable_declarator name: (identifier) @name)) @field
    """,
    blanks="(line_comment) @blank (block_comment) @blank (string_fragment) @blank (character_literal) @blank "
    "(multiline_string_fragment) @blank (escape_sequence) @blank",
    keywords=words(
        "abstract assert boolean break byte case catch char class const continue default do double else enum "
        "extends false final finally float for goto if implements import instanceof int interface long "
        "native "
        "new null package private protected public return short static strictfp super switch synchronized "
        "this "
        "throw throws transient true try void volatile while"
    ),
)
