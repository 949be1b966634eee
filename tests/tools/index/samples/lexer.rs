//! Splits text into tokens.

use std::fmt;

const MAX_DEPTH: usize = 64;
static KEYWORDS: [&str; 2] = ["let", "fn"];

/// What a token is.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    Word,
    Number(i64),
    Symbol { text: char },
}

#[derive(Debug)]
pub struct Token {
    pub kind: Kind,
    line: usize,
}

pub trait Source {
    type Item;
    fn next_char(&mut self) -> Option<char>;
    fn rest(&self) -> usize {
        0
    }
}

pub type Tokens = Vec<Token>;

macro_rules! token {
    ($kind:expr) => {
        Token { kind: $kind, line: 0 }
    };
}

impl Token {
    /// A token of a line.
    pub fn new(kind: Kind, line: usize) -> Self {
        Token { kind, line }
    }

    fn is_word(&self) -> bool {
        matches!(self.kind, Kind::Word)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {}", self.kind, self.line)
    }
}

pub mod numbers {
    pub fn parse(text: &str) -> Option<i64> {
        text.parse().ok()
    }
}

pub fn lex(text: &str) -> Tokens {
    let mut tokens = Vec::new();
    for (line, word) in text.lines().enumerate() {
        if KEYWORDS.contains(&word) && tokens.len() < MAX_DEPTH {
            tokens.push(Token::new(Kind::Word, line));
        }
    }
    tokens.push(token!(Kind::Number(1)));
    tokens
}
