//! What a peer says about itself in every frame: its language and the version of the protocol that it speaks.

macro_rules! languages {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $name:literal;)*) => {
        /// The language of a peer, as it calls itself.
        ///
        /// A peer whose language is unknown here has none (`Option<Language>`). Source: `spec/protocol.md` 1.7.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Language {
            $($(#[$doc])* $variant,)*
        }

        impl Language {
            /// Every language, in the order of their codes.
            pub const ALL: &[Language] = &[$(Language::$variant,)*];

            /// The number in binary headers.
            #[must_use]
            pub const fn code(self) -> u8 {
                match self { $(Language::$variant => $code,)* }
            }

            /// The name in JSON headers.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Language::$variant => $name,)* }
            }
        }
    };
}

languages! {
    /// Java.
    Java = 0, "JAVA";
    /// C++.
    Cpp = 1, "CPP";
    /// .NET.
    DotNet = 2, "DOTNET";
    /// Python.
    Python = 3, "PYTHON";
    /// Delphi.
    Delphi = 4, "DELPHI";
    /// Erlang.
    Erlang = 5, "ERLANG";
    /// Ruby.
    Ruby = 6, "RUBY";
    /// Something else.
    Other = 7, "OTHER";
    /// An HTTP bridge.
    Http = 8, "HTTP";
    /// Go.
    Go = 9, "GO";
    /// PHP.
    Php = 10, "PHP";
    /// OpenMessaging.
    Oms = 11, "OMS";
    /// Rust; known to peers since 4.9.4.
    Rust = 12, "RUST";
    /// Node.js; known to peers since 5.3.2.
    NodeJs = 13, "NODE_JS";
}

impl Language {
    /// The language with this code, or `None`.
    #[must_use]
    pub fn from_code(code: i64) -> Option<Language> {
        usize::try_from(code).ok().and_then(|at| Language::ALL.get(at)).copied()
    }

    /// The language with this name, or `None`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Language> {
        Language::ALL.iter().copied().find(|language| language.name() == name)
    }
}

macro_rules! versions {
    ($($name:ident = $ordinal:literal;)*) => {
        impl Version {
            $(
                #[doc = concat!("Ordinal ", stringify!($ordinal), ".")]
                pub const $name: Version = Version($ordinal);
            )*

            /// The release with exactly this ordinal, such as `V5_3_3`; `None` for snapshots and for unknown ordinals.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($ordinal => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

/// The ordinal of a peer's release in the reference's list of releases. Larger is newer.
///
/// Any number may arrive; beyond [`Version::HIGHER_VERSION`] they all mean "newer than anything known".
/// Source: `spec/protocol.md` 1.8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version(pub i32);

versions! {
    V3_0_0_SNAPSHOT = 0;
    V3_0_7_SNAPSHOT = 28;
    V3_0_11 = 37;
    V3_1_8_SNAPSHOT = 62;
    V3_4_9 = 121;
    V3_5_8 = 137;
    V4_0_0_SNAPSHOT = 212;
    V4_1_0_SNAPSHOT = 232;
    V4_5_2 = 317;
    V4_8_0 = 373;
    V4_9_0 = 393;
    V4_9_3 = 399;
    V4_9_4 = 401;
    V4_9_5 = 403;
    V4_9_6 = 405;
    V4_9_7 = 407;
    V4_9_8 = 409;
    V5_0_0 = 413;
    V5_1_0 = 433;
    V5_1_4 = 441;
    V5_2_0 = 453;
    V5_3_0 = 473;
    V5_3_1 = 475;
    V5_3_2 = 477;
    V5_3_3 = 479;
    V5_3_4 = 481;
    V5_4_0 = 493;
    HIGHER_VERSION = 612;
}

impl Version {
    /// What this crate sends: it behaves as 5.3.3.
    pub const CURRENT: Version = Version::V5_3_3;
}
