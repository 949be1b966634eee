"""Both ends of a text that is too long to show whole."""


def excerpt(text: str, limit: int, lost: int = 0) -> tuple[str, bool]:
    """At most about `limit` characters of a text from both its ends, and whether something is missing.

    `lost` counts bytes before the text that nobody kept.
    """
    if len(text) <= limit:
        return (f"[… {lost:,} bytes left out …]\n{text}", True) if lost else (text, False)
    half = limit // 2
    hidden = f"{len(text) - 2 * half:,} characters left out" + (f", {lost:,} bytes lost" if lost else "")
    return f"{text[:half]}\n[… {hidden} …]\n{text[-half:]}", True
