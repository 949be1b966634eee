"""Rust."""

import tree_sitter_rust

from tools.index.languages.language import Language, words

LANGUAGE = Language(
    name="rust",
    grammar=tree_sitter_rust.language,
    definitions="""
        (struct_item name: (type_identifier) @name) @struct
        (enum_item name: (type_identifier) @name) @enum
        (union_item name: (type_identifier) @name) @union
        (trait_item name: (type_identifier) @name) @interface
        (type_item name: (type_identifier) @name) @type
        (associated_type name: (type_identifier) @name) @type
        (impl_item type: [
            (type_identifier) @name
            (generic_type type: (type_identifier) @name)
            (generic_type type: (scoped_type_identifier name: (type_identifier) @name))
            (scoped_type_identifier name: (type_identifier) @name)
            (reference_type type: (type_identifier) @name)
            (primitive_type) @name
        ]) @scope
        (function_item name: (identifier) @name) @function
        (function_signature_item name: (identifier) @name) @function
        (const_item name: (identifier) @name) @constant
        (static_item name: (identifier) @name) @variable
        (macro_definition name: (identifier) @name) @macro
        (mod_item name: (identifier) @name body: (_)) @module
        (field_declaration name: (field_identifier) @name) @field
        (enum_variant name: (identifier) @name) @constant
    """,
    blanks="(line_comment) @blank (block_comment) @blank (string_literal) @blank (raw_string_literal) @blank "
    "(char_literal) @blank",
    keywords=words(
        "as async await break const continue crate dyn else enum extern false fn for if impl in let loop "
        "match "
        "mod move mut pub ref return self Self static struct super trait true type unsafe use where while"
    ),
    separator="::",
    attributes=("#[",),
)
