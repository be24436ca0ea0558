//! kubectl's selector syntax: `a=b,c!=d,e in (f,g),!h,i,j>1`.

use super::{Operator, Requirement, SelectorError, syntax};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    /// A key, a value or one of the words `in` and `notin`.
    Word(&'a str),
    /// One of `= == != ! < > ( ) ,`.
    Symbol(&'a str),
    End,
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Self::Word(text) | Self::Symbol(text) => text,
            Self::End => "",
        }
    }
}

/// Parses a list of requirements, in the order of the text.
pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    let mut parser = Parser { rest: text };
    let mut requirements = Vec::new();
    match parser.peek() {
        Token::End => return Ok(requirements),
        Token::Word(_) | Token::Symbol("!") => {}
        symbol @ Token::Symbol(_) => return found(symbol, ", expected: !, identifier, or 'end of string'"),
    }
    loop {
        let requirement = parser
            .requirement()
            .map_err(|error| SelectorError(format!("unable to parse requirement: {error}")))?;
        requirements.push(requirement);
        match parser.next() {
            Token::End => return Ok(requirements),
            Token::Symbol(",") => {}
            other => return found(other, ", expected: ',' or 'end of string'"),
        }
        match parser.peek() {
            Token::Word(_) | Token::Symbol("!") => {}
            other => return found(other, ", expected: identifier after ','"),
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Token<'a> {
        let (token, rest) = lex(self.rest);
        self.rest = rest;
        token
    }

    fn peek(&self) -> Token<'a> {
        lex(self.rest).0
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let mut token = self.next();
        let negated = token == Token::Symbol("!");
        if negated {
            token = self.next();
        }
        let Token::Word(key) = token else {
            return found(token, ", expected: identifier");
        };
        let mut problems = Vec::new();
        syntax::check_key("<nil>", key, &mut problems); // Go prints the missing path as this
        if let Some(problem) = syntax::aggregate(problems) {
            return Err(SelectorError(problem));
        }
        if negated {
            return Requirement::new(key, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Requirement::new(key, Operator::Exists, Vec::new());
        }
        let operator = self.operator()?;
        let mut values = match operator {
            Operator::In | Operator::NotIn => self.set()?,
            _ => vec![self.value()?],
        };
        // apimachinery collects the values in a set, and numbers them in errors by their sorted order.
        values.sort_unstable();
        values.dedup();
        Requirement::new(key, operator, values.into_iter().map(str::to_owned).collect())
    }

    fn operator(&mut self) -> Result<Operator, SelectorError> {
        Ok(match self.next() {
            Token::Word("in") => Operator::In,
            Token::Word("notin") => Operator::NotIn,
            Token::Symbol("=") => Operator::Equals,
            Token::Symbol("==") => Operator::DoubleEquals,
            Token::Symbol("!=") => Operator::NotEquals,
            Token::Symbol(">") => Operator::GreaterThan,
            Token::Symbol("<") => Operator::LessThan,
            other => return found(other, ", expected: in, notin, =, ==, !=, gt, lt"),
        })
    }

    /// The value of a comparison, which may be empty.
    fn value(&mut self) -> Result<&'a str, SelectorError> {
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok("");
        }
        match self.next() {
            Token::Word(value) => Ok(value),
            other => found(other, ", expected: identifier"),
        }
    }

    /// The values between parentheses. Between two commas there is an empty value.
    fn set(&mut self) -> Result<Vec<&'a str>, SelectorError> {
        match self.next() {
            Token::Symbol("(") => {}
            other => return found(other, " expected: '('"),
        }
        let mut values = Vec::new();
        match self.peek() {
            Token::Word(_) | Token::Symbol(",") => {}
            Token::Symbol(")") => {
                self.next();
                return Ok(vec![""]);
            }
            other => return found(other, ", expected: ',', ')' or identifier"),
        }
        let mut wants_value = true;
        loop {
            match self.next() {
                Token::Word(value) if wants_value => {
                    values.push(value);
                    wants_value = false;
                }
                Token::Symbol(",") => {
                    if wants_value {
                        values.push("");
                    }
                    wants_value = true;
                }
                Token::Symbol(")") => {
                    if wants_value {
                        values.push("");
                    }
                    return Ok(values);
                }
                other if wants_value => return found(other, ", expected: ',', or identifier"),
                other => return found(other, ", expected: ',' or ')'"),
            }
        }
    }
}

fn found<T>(token: Token<'_>, expected: &str) -> Result<T, SelectorError> {
    Err(SelectorError(format!("found '{}'{expected}", token.text())))
}

/// Splits off the first token of `text`.
fn lex(text: &str) -> (Token<'_>, &str) {
    let text = text.trim_start_matches(is_space);
    let Some(first) = text.chars().next() else {
        return (Token::End, "");
    };
    if is_symbol(first) {
        let len = if text.starts_with("==") || text.starts_with("!=") {
            2
        } else {
            1
        };
        let (symbol, rest) = text.split_at(len);
        return (Token::Symbol(symbol), rest);
    }
    let len = text.find(|c| is_symbol(c) || is_space(c)).unwrap_or(text.len());
    let (word, rest) = text.split_at(len);
    (Token::Word(word), rest)
}

const fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

const fn is_symbol(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '<' | '>')
}
