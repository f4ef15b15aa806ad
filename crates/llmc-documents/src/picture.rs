//! Images in a size and a format that models take.

use std::io::Cursor;

use image::codecs::jpeg::JpegEncoder;
use image::metadata::Orientation;
use image::{
    DynamicImage, GenericImageView, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits,
    RgbImage,
};

use crate::{ConversionFault, ImageKind, MAX_IMAGE_BYTES, MAX_IMAGE_SIDE, ScaledImage};

/// Images with more pixels are not decoded.
const MAX_PIXELS: u64 = 64_000_000;
/// Memory that a decoder may take.
const MAX_DECODER_BYTES: u64 = 320 << 20;
/// An image that needs no scaling is passed on as it is up to this size.
const MAX_KEPT_BYTES: usize = 1 << 20;
/// A PNG above this size is sent as JPEG, which is smaller for photographs.
const MAX_PNG_BYTES: usize = 1 << 20;
const JPEG_QUALITY: u8 = 85;
const LOW_JPEG_QUALITY: u8 = 60;

pub(crate) fn scale(bytes: &[u8]) -> Result<ScaledImage, ConversionFault> {
    let mut reader = ImageReader::new(Cursor::new(bytes))
        .with_guessed_format()
        .map_err(ConversionFault::damaged)?;
    let source = match reader.format() {
        Some(ImageFormat::Png) => ImageKind::Png,
        Some(ImageFormat::Jpeg) => ImageKind::Jpeg,
        Some(ImageFormat::Gif) => ImageKind::Gif,
        Some(ImageFormat::WebP) => ImageKind::WebP,
        _ => return Err(ConversionFault::Unknown),
    };
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_DECODER_BYTES);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(fault)?;
    let (width, height) = decoder.dimensions();
    if u64::from(width) * u64::from(height) > MAX_PIXELS {
        let most = MAX_PIXELS / 1_000_000;
        return Err(ConversionFault::TooLarge(format!(
            "it has {width}x{height} pixels, and only images up to {most} megapixels are decoded"
        )));
    }
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let mut image = DynamicImage::from_decoder(decoder).map_err(fault)?;
    image.apply_orientation(orientation);
    let (source_width, source_height) = image.dimensions();
    let is_within = source_width.max(source_height) <= MAX_IMAGE_SIDE;
    // Of an animation, a model gets the first picture.
    let is_kept = is_within
        && orientation == Orientation::NoTransforms
        && source != ImageKind::Gif
        && bytes.len() <= MAX_KEPT_BYTES;
    let (kind, bytes, (width, height)) = if is_kept {
        (source, bytes.to_vec(), (source_width, source_height))
    } else {
        if !is_within {
            image = image.thumbnail(MAX_IMAGE_SIDE, MAX_IMAGE_SIDE);
        }
        let (kind, bytes) = encode(&image, source)?;
        (kind, bytes, image.dimensions())
    };
    Ok(ScaledImage {
        kind,
        width,
        height,
        source,
        source_width,
        source_height,
        bytes,
    })
}

/// JPEG for photographs, PNG for what must stay sharp or transparent.
fn encode(
    image: &DynamicImage,
    source: ImageKind,
) -> Result<(ImageKind, Vec<u8>), ConversionFault> {
    if source != ImageKind::Jpeg {
        let mut png = Vec::new();
        let eight_bits = match image.color().has_alpha() {
            true => DynamicImage::ImageRgba8(image.to_rgba8()),
            false => DynamicImage::ImageRgb8(image.to_rgb8()),
        };
        eight_bits
            .write_to(&mut Cursor::new(&mut png), ImageFormat::Png)
            .map_err(fault)?;
        if png.len() <= MAX_PNG_BYTES {
            return Ok((ImageKind::Png, png));
        }
    }
    let opaque = on_white(image);
    for quality in [JPEG_QUALITY, LOW_JPEG_QUALITY] {
        let mut jpeg = Vec::new();
        JpegEncoder::new_with_quality(&mut jpeg, quality)
            .encode_image(&opaque)
            .map_err(fault)?;
        if jpeg.len() <= MAX_IMAGE_BYTES {
            return Ok((ImageKind::Jpeg, jpeg));
        }
    }
    Err(ConversionFault::TooLarge(
        "it cannot be made small enough".to_owned(),
    ))
}

/// The image without transparency.
fn on_white(image: &DynamicImage) -> RgbImage {
    if !image.color().has_alpha() {
        return image.to_rgb8();
    }
    let image = image.to_rgba8();
    let mut opaque = RgbImage::new(image.width(), image.height());
    for (pixel, out) in image.pixels().zip(opaque.pixels_mut()) {
        let [red, green, blue, alpha] = pixel.0.map(u16::from);
        let over = |value: u16| ((value * alpha + 255 * (255 - alpha)) / 255) as u8;
        out.0 = [over(red), over(green), over(blue)];
    }
    opaque
}

fn fault(error: ImageError) -> ConversionFault {
    match error {
        ImageError::Limits(_) => {
            ConversionFault::TooLarge("decoding it takes too much memory".to_owned())
        }
        error => ConversionFault::damaged(error),
    }
}
