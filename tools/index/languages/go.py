"""Go."""

import tree_sitter_go

from tools.index.languages.language import COMMENTS, Language, words

LANGUAGE = Language(
    name="go",
    grammar=tree_sitter_go.language,
    definitions="""
        (function_declaration name: (identifier) @name) @function
        (method_declaration
            receiver: (parameter_list (parameter_declaration type: [
                (type_identifier) @container
                (pointer_type (type_identifier) @container)
                (generic_type type: (type_identifier) @container)
                (pointer_type (generic_type type: (type_identifier) @container))
            ]))
            name: (field_identifier) @name) @method
        (type_spec name: (type_identifier) @name type: (struct_type)) @struct
        (type_spec name: (type_identifier) @name type: (interface_type)) @interface
        (type_spec name: (type_identifier) @name type: [
            (type_identifier) (pointer_type) (array_type) (slice_type) (map_type) (channel_type)
            (function_type) (qualified_type) (generic_type) (parenthesized_type)]) @type
        (type_alias name: (type_identifier) @name) @type
        (field_declaration name: (field_identifier) @name) @field
        (interface_type (method_elem name: (field_identifier) @name) @method)
        (source_file (const_declaration (const_spec name: (identifier) @name) @constant))
        (source_file (var_declaration (var_spec name: (identifier) @name) @variable))
        (source_file (var_declaration (var_spec_list (var_spec name: (identifier) @name) @variable)))
    """,
    blanks=COMMENTS
    + " (interpreted_string_literal) @blank (raw_string_literal) @blank (rune_literal) @blank",
    keywords=words(
        "break case chan const continue default defer else fallthrough for func go goto if import interface "
        "map "
        "package range return select struct switch type var nil true false"
    ),
)
