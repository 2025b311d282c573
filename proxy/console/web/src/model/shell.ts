// Words of a shell's command line.

// quote makes one word of any text.
export const quote = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

// shellWord quotes a text unless it means the same without quotes. zsh replaces words that begin with =.
export const shellWord = (text: string) => (/^[\w%+,./:@-][\w%+,./:=@-]*$/.test(text) ? text : quote(text));
