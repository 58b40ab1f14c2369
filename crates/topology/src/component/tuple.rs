//! A tuple as a bolt gets it: values by place or by name.

use crate::bolt::TupleId;
use crate::definition::Stream;
use crate::ids::{StreamId, TaskId};
use crate::plan::Plan;
use crate::value::{Value, ValueError};
use crate::values::Values;

/// A tuple that a bolt is to process.
#[derive(Clone, Copy, Debug)]
pub struct Tuple<'a> {
    id: TupleId,
    from: TaskId,
    declaration: &'a Stream,
    component: &'a str,
    values: &'a Values,
}

/// A field by its place, or by the name that the stream declares.
pub trait FieldRef: Copy {
    /// Its place in `stream`.
    fn place(self, stream: &Stream) -> Option<usize>;
    /// What to call it in an error.
    fn label(self) -> String;
}

/// A field that a bolt cannot read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// No field of this name or place.
    #[error("stream `{stream}` of `{component}` declares no field {field}: it has {fields}")]
    Unknown {
        /// What was asked for.
        field: String,
        /// Whose tuple it is.
        component: String,
        /// Its stream.
        stream: String,
        /// The names of its fields.
        fields: String,
    },
    /// Another kind of value.
    #[error("field {field} of `{component}` is {kind}, not {wanted}")]
    Kind {
        /// What was asked for.
        field: String,
        /// Whose tuple it is.
        component: String,
        /// What it is.
        kind: &'static str,
        /// What it should be.
        wanted: &'static str,
    },
    /// Its bytes are no value.
    #[error("field {field} of `{component}`: {error}")]
    Value {
        /// What was asked for.
        field: String,
        /// Whose tuple it is.
        component: String,
        /// What is wrong.
        error: ValueError,
    },
}

impl<'a> Tuple<'a> {
    /// The tuple `id` with `values`, which task `from` emitted on `stream`.
    #[must_use]
    pub fn new(plan: &'a Plan, id: TupleId, from: TaskId, stream: StreamId, values: &'a Values) -> Self {
        let (component, declaration) = plan.declaration(stream);
        Self { id, from, declaration, component: &plan.component(component).id, values }
    }

    /// What to acknowledge, to let fail and to anchor to.
    #[must_use]
    pub fn id(&self) -> TupleId {
        self.id
    }

    /// The task that emitted it.
    #[must_use]
    pub fn task(&self) -> TaskId {
        self.from
    }

    /// The component that emitted it.
    #[must_use]
    pub fn component(&self) -> &'a str {
        self.component
    }

    /// The stream on which it was emitted, with the names of its fields.
    #[must_use]
    pub fn stream(&self) -> &'a Stream {
        self.declaration
    }

    /// Its values, undecoded. A clone shares the bytes.
    #[must_use]
    pub fn values(&self) -> &'a Values {
        self.values
    }

    /// The value of a field.
    ///
    /// # Errors
    /// There is no such field, or its bytes are no value.
    pub fn get(&self, field: impl FieldRef) -> Result<Value<'a>, FieldError> {
        let unknown = || FieldError::Unknown {
            field: field.label(),
            component: self.component.to_owned(),
            stream: self.declaration.id.clone(),
            fields: self.declaration.fields.join(", "),
        };
        let place = field.place(self.declaration).ok_or_else(unknown)?;
        let value = self.values.value(place).ok_or_else(unknown)?;
        value.map_err(|error| {
            let component = self.component.to_owned();
            FieldError::Value { field: field.label(), component, error }
        })
    }

    /// The text of a field.
    ///
    /// # Errors
    /// As [`Tuple::get`], or it is not text.
    pub fn str(&self, field: impl FieldRef) -> Result<&'a str, FieldError> {
        match self.get(field)? {
            Value::Str(std::borrow::Cow::Borrowed(text)) => Ok(text),
            other => Err(self.misfit(field, &other, "text")),
        }
    }

    /// The bytes of a field; text is given as its bytes.
    ///
    /// # Errors
    /// As [`Tuple::get`], or it is neither bytes nor text.
    pub fn bytes(&self, field: impl FieldRef) -> Result<&'a [u8], FieldError> {
        match self.get(field)? {
            Value::Bytes(std::borrow::Cow::Borrowed(bytes)) => Ok(bytes),
            Value::Str(std::borrow::Cow::Borrowed(text)) => Ok(text.as_bytes()),
            other => Err(self.misfit(field, &other, "bytes")),
        }
    }

    /// The whole number of a field.
    ///
    /// # Errors
    /// As [`Tuple::get`], or it is not one.
    pub fn int(&self, field: impl FieldRef) -> Result<i64, FieldError> {
        match self.get(field)? {
            Value::Int(value) => Ok(value),
            other => Err(self.misfit(field, &other, "an integer")),
        }
    }

    /// The number of a field; a whole number is converted.
    ///
    /// # Errors
    /// As [`Tuple::get`], or it is no number.
    pub fn float(&self, field: impl FieldRef) -> Result<f64, FieldError> {
        match self.get(field)? {
            Value::Float(value) => Ok(value),
            Value::Int(value) => Ok(value as f64),
            other => Err(self.misfit(field, &other, "a float")),
        }
    }

    /// Whether a field is true.
    ///
    /// # Errors
    /// As [`Tuple::get`], or it is neither true nor false.
    pub fn bool(&self, field: impl FieldRef) -> Result<bool, FieldError> {
        match self.get(field)? {
            Value::Bool(value) => Ok(value),
            other => Err(self.misfit(field, &other, "a bool")),
        }
    }

    fn misfit(&self, field: impl FieldRef, value: &Value<'_>, wanted: &'static str) -> FieldError {
        let (field, component) = (field.label(), self.component.to_owned());
        FieldError::Kind { field, component, kind: value.kind(), wanted }
    }
}

impl FieldRef for usize {
    fn place(self, stream: &Stream) -> Option<usize> {
        (self < stream.fields.len()).then_some(self)
    }

    fn label(self) -> String {
        self.to_string()
    }
}

impl FieldRef for &str {
    fn place(self, stream: &Stream) -> Option<usize> {
        stream.fields.iter().position(|field| field == self)
    }

    fn label(self) -> String {
        format!("`{self}`")
    }
}
