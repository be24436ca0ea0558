//! Words that a field of the spec may have.

/// Declares an enumeration of words, with its schema. schemars' derive would describe each variant in a form that structural
/// schemas do not allow.
macro_rules! field_enum {
    ($(#[$doc:meta])* $enum:ident { $($(#[$about:meta])* $variant:ident,)* }) => {
        $(#[$doc])*
        #[derive(serde::Serialize, serde::Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $enum {
            $($(#[$about])* $variant,)*
        }

        impl $enum {
            /// All values, in the order of the documentation.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant),)* }
            }
        }

        $crate::field_enum::inline_schema!($enum { "type": "string", "enum": [$(stringify!($variant)),*] });
    };
}
pub(crate) use field_enum;

/// Gives a type its schema.
macro_rules! inline_schema {
    ($type:ident $schema:tt) => {
        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!($schema)
            }
        }
    };
}
pub(crate) use inline_schema;
