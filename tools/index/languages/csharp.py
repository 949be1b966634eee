"""C#."""

import tree_sitter_c_sharp

from tools.index.languages.language import Language, words

LANGUAGE = Language(
    name="csharp",
    grammar=tree_sitter_c_sharp.language,
    definitions="""
        (namespace_declaration name: (_) @name) @module
        (class_declaration name: (identifier) @name) @class
        (record_declaration name: (identifier) @name) @class
        (struct_declaration name: (identifier) @name) @struct
        (interface_declaration name: (identifier) @name) @interface
        (enum_declaration name: (identifier) @name) @enum
        (enum_member_declaration name: (identifier) @name) @constant
        (delegate_declaration name: (identifier) @name) @type
        (method_declaration name: (identifier) @name) @method
        (constructor_declaration name: (identifier) @name) @method
        (destructor_declaration name: (identifier) @name) @method
        (local_function_statement name: (identifier) @name) @function
        (property_declaration name: (identifier) @name) @field
        (event_declaration name: (identifier) @name) @field
        (event_field_declaration (variable_declaration (variable_declarator name: (identifier) @name))) @field
        (field_declaration (variable_declaration (variable_declarator name: (identifier) @name))) @field
    """,
    blanks="(comment) @blank (string_literal_content) @blank (string_content) @blank (character_literal) "
    "@blank "
    "(verbatim_string_literal) @blank (raw_string_content) @blank",
    keywords=words(
        "abstract as base bool break byte case catch char checked class const continue decimal default "
        "delegate "
        "do double else enum event explicit extern false finally fixed float for foreach goto if implicit "
        "in int "
        "interface internal is lock long namespace new null object operator out override params private "
        "protected public readonly ref return sbyte sealed short sizeof stackalloc static string struct "
        "switch "
        "this throw true try typeof uint ulong unchecked unsafe ushort using virtual void volatile while var"
    ),
)
