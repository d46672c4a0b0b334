"""Pictures from a sandbox: of their type, and of a size that a page can draw."""

import base64
import contextlib
import io

import pytest
from PIL import Image

from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.media import MAX_IMAGE_BYTES, check_data_url, check_image, picture_work

FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG", "image/gif": "GIF", "image/webp": "WEBP"}


def picture(mime, size=(30, 20), **options):
    file = io.BytesIO()
    Image.new("RGB", size, "red").save(file, FORMATS[mime], **options)
    return file.getvalue()


def encoded(data):
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("mime", "options"),
    [*((mime, {}) for mime in FORMATS), ("image/webp", {"lossless": True}), ("image/jpeg", {"progressive": True})],
)
def test_a_real_picture_passes_and_is_canonical(mime, options):
    text = base64.encodebytes(picture(mime, **options)).decode()
    assert base64.b64decode(check_image(mime, text), validate=True) == picture(mime, **options)


@pytest.mark.parametrize("mime", FORMATS)
@pytest.mark.parametrize("other", FORMATS)
def test_a_picture_of_another_format_is_refused(mime, other):
    if mime != other:
        with pytest.raises(ContentRefused, match="is not image/"):
            check_image(mime, encoded(picture(other)))


@pytest.mark.parametrize("mime", FORMATS)
def test_a_truncated_header_is_refused_and_never_an_error(mime):
    data = picture(mime)
    for length in range(64):
        with contextlib.suppress(ContentRefused):
            check_image(mime, encoded(data[:length]))


def test_the_scans_of_a_jpeg_are_few_and_each_is_work() -> None:
    photo = picture("image/jpeg", (2000, 2000), progressive=True)
    scan = photo[photo.rindex(b"\xff\xda") : -2]
    once, often = (encoded(photo[:-2] + scan * more + b"\xff\xd9") for more in (0, 80))
    assert 5 * picture_work("image/jpeg", once) < picture_work("image/jpeg", check_image("image/jpeg", often))
    with pytest.raises(ContentRefused, match="scans"):
        check_image("image/jpeg", encoded(photo[:-2] + scan * 100))


def test_script_with_the_name_of_a_picture_is_refused():
    with pytest.raises(ContentRefused, match="is not image/png"):
        check_image("image/png", encoded(b"<svg onload=alert(1)>"))
    with pytest.raises(ContentRefused, match="not base64"):
        check_image("image/png", "<script>")
    with pytest.raises(ContentRefused, match="not base64"):
        check_image("image/png", "iVBO\u00e4")


def test_a_picture_that_unpacks_to_gigabytes_is_refused():
    data = bytearray(picture("image/png"))
    data[16:24] = (60000).to_bytes(4, "big") * 2
    with pytest.raises(ContentRefused, match="60000 x 60000 pixels"):
        check_image("image/png", encoded(bytes(data)))
    data[16:24] = bytes(8)
    with pytest.raises(ContentRefused, match="0 x 0"):
        check_image("image/png", encoded(bytes(data)))


def test_a_picture_of_too_many_bytes_is_refused():
    with pytest.raises(ContentRefused, match="larger than 16 MB"):
        check_image("image/png", encoded(picture("image/png") + bytes(MAX_IMAGE_BYTES)))


def test_a_jpeg_of_endless_padding_ends():
    with pytest.raises(ContentRefused):
        check_image("image/jpeg", encoded(b"\xff\xd8" + b"\xff" * 100000))
    with pytest.raises(ContentRefused):
        check_image("image/jpeg", encoded(b"\xff\xd8" + b"\xff\xe0\x00\x00" * 1000))


def test_only_data_urls_of_checked_pictures_pass():
    good = "data:image/png;base64," + encoded(picture("image/png"))
    assert check_data_url(good) == good
    for bad in (
        "https://evil.example/x.png",
        "data:image/svg+xml;base64," + encoded(b"<svg/>"),
        "data:text/html;base64,AAAA",
        "data:image/png,AAAA",
        "data:image/png;base64,AAAA",
        " " + good,
        good.replace("image/png", "image/gif"),
        "",
    ):
        assert check_data_url(bad) is None
