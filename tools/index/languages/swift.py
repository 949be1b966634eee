"""Swift."""

import tree_sitter_swift

from tools.index.languages.language import Language, words

LANGUAGE = Language(
    name="swift",
    grammar=tree_sitter_swift.language,
    definitions="""
        (class_declaration declaration_kind: ["class" "actor"] name: (type_identifier) @name) @class
        (class_declaration declaration_kind: "struct" name: (type_identifier) @name) @struct
        (class_declaration declaration_kind: "enum" name: (type_identifier) @name) @enum
        (class_declaration declaration_kind: "extension" name: (_) @name) @scope
        (protocol_declaration name: (type_identifier) @name) @interface
        (typealias_declaration name: (type_identifier) @name) @type
        (function_declaration name: (simple_identifier) @name) @function
        (protocol_function_declaration name: (simple_identifier) @name) @method
        (init_declaration "init" @name) @method
        (enum_entry name: (simple_identifier) @name) @constant
        (class_body (property_declaration
            name: (pattern bound_identifier: (simple_identifier) @name)) @field)
        (source_file (property_declaration
            name: (pattern bound_identifier: (simple_identifier) @name)) @variable)
    """,
    blanks="(comment) @blank (multiline_comment) @blank (line_str_text) @blank (multi_line_str_text) @blank",
    keywords=words(
        "as break case catch class continue default defer do else enum extension fallthrough false "
        "fileprivate "
        "for func guard if import in init inout internal is let nil open operator private protocol public "
        "repeat "
        "return self Self static struct subscript super switch throw throws true try typealias var where "
        "while"
    ),
    attributes=("@",),
)
