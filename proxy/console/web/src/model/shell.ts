// Words on a shell's command line.

// quote turns any text into one word.
export const quote = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

// shellWord quotes a text unless it means the same without quotes. zsh replaces words that begin with =.
export const shellWord = (text: string) => (/^[\w%+,./:@-][\w%+,./:=@-]*$/.test(text) ? text : quote(text));
