"""Texts that try to run, to break out of their place, or to steer what is shown."""

ATTACKS = [
    "</script><script>window.harm = 1</script>",
    "<img src=x onerror='window.harm = 1'>",
    "<!--<script>",
    "' onmouseover='window.harm = 1' \"",
    "${window.harm = 1}",
    "javascript:window.harm=1",
    "&lt;b&gt; &amp; \x07 \x1b[31m \x9b",
    "<svg onload=window.harm=1>",
    "\u202eright to left\u2066",
    "]]></style><script>window.harm=1</script>",
]
