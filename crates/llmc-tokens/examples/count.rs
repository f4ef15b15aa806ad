//! Prints how many `o200k_base` tokens the text on standard input has.
#![allow(clippy::print_stdout)]

use std::io::{self, Read};

fn main() -> io::Result<()> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    println!("{}", llmc_tokens::count(&text));
    Ok(())
}
