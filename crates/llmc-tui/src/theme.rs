//! Styles, with and without colours.

use ratatui::style::{Color, Modifier, Style};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Theme {
    /// The terminal's sixteen colours, so that it fits light and dark ones.
    Colour,
    /// Bold, dim and reversed only.
    Plain,
}

impl Theme {
    /// Plain when `NO_COLOR` is set and not empty.
    pub fn from_no_color(no_color: Option<&std::ffi::OsStr>) -> Theme {
        match no_color {
            Some(value) if !value.is_empty() => Theme::Plain,
            _ => Theme::Colour,
        }
    }

    fn coloured(self, colour: Color) -> Style {
        match self {
            Theme::Colour => Style::new().fg(colour),
            Theme::Plain => Style::new(),
        }
    }

    pub(crate) fn title(self) -> Style {
        self.coloured(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    pub(crate) fn border(self, focused: bool) -> Style {
        if focused {
            self.title()
        } else {
            Style::new().add_modifier(Modifier::DIM)
        }
    }

    pub(crate) fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(crate) fn bold(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(crate) fn good(self) -> Style {
        self.coloured(Color::Green)
    }

    pub(crate) fn bad(self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub(crate) fn served(self) -> Style {
        self.coloured(Color::Blue)
    }

    pub(crate) fn withheld(self) -> Style {
        self.coloured(Color::Green)
    }

    pub(crate) fn warning(self) -> Style {
        match self {
            Theme::Colour => Style::new().fg(Color::Yellow),
            Theme::Plain => Style::new().add_modifier(Modifier::BOLD),
        }
    }

    pub(crate) fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}
